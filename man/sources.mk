dist_man_MANS = \
	man/amptrain.1 \
	man/amptrain.3 \
	man/amptrain-ir.7 \
	man/amptrain-json.5 \
	man/amptrain-parallel.7 \
	man/amptrain-pack.5 \
	man/amptrain.ini.5 \
	man/amptrain-model.5

# amptrain.ini(5) is written by hand but for its options, which come from the option table.
noinst_PROGRAMS += man/ini_manual
man_ini_manual_SOURCES = man/ini_manual.c
man_ini_manual_LDADD = libconf.a libbase.a
EXTRA_DIST += man/amptrain.ini.5.in
CLEANFILES += man/amptrain.ini.5

man/amptrain.ini.5: man/amptrain.ini.5.in man/ini_manual.c conf/options.def | man/ini_manual$(EXEEXT)
	$(AM_V_GEN)./man/ini_manual <$(srcdir)/man/amptrain.ini.5.in >$@.part && mv $@.part $@

# amptrain-model(5) likewise: its ops come from their own structs.
noinst_PROGRAMS += man/model_manual
man_model_manual_SOURCES = man/model_manual.c
man_model_manual_LDADD = libkernels.a libdevice.a libamp.a libbase.a $(CUDA_LIBS)
EXTRA_DIST += man/amptrain-model.5.in
CLEANFILES += man/amptrain-model.5

man/amptrain-model.5: man/amptrain-model.5.in man/model_manual.c kernels/ops.def | man/model_manual$(EXEEXT)
	$(AM_V_GEN)./man/model_manual <$(srcdir)/man/amptrain-model.5.in >$@.part && mv $@.part $@
