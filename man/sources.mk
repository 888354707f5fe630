dist_man_MANS = \
	man/amptrain.1 \
	man/amptrain.ini.5 \
	$(wildcard $(srcdir)/man/amptrain-*.5)

# amptrain.ini(5) is written by hand but for its options, which come from the option table.
noinst_PROGRAMS += man/ini_manual
man_ini_manual_SOURCES = man/ini_manual.c
man_ini_manual_LDADD = libconf.a libbase.a
EXTRA_DIST += man/amptrain.ini.5.in
CLEANFILES += man/amptrain.ini.5

man/amptrain.ini.5: man/amptrain.ini.5.in conf/options.def | man/ini_manual$(EXEEXT)
	$(AM_V_GEN)./man/ini_manual <$(srcdir)/man/amptrain.ini.5.in >$@.part && mv $@.part $@
