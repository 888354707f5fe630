if HAVE_CUPTI
noinst_DATA = bench/cuda_trace.so
CLEANFILES += bench/cuda_trace.so
bench/cuda_trace.so: bench/cuda_trace.c
	@$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -fPIC -shared -o $@ \
		$(srcdir)/bench/cuda_trace.c $(AM_LDFLAGS) $(LDFLAGS) -lcupti
endif
