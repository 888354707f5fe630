libapi_a_SOURCES = \
	src/api/amptrain.c \
	src/api/amptrain.h \
	src/api/network.c \
	src/api/network.h \
	src/api/servant.c \
	src/api/servant.h

# libamptrain, shared and static. Both keep everything to themselves but what amptrain.h declares. jemalloc is the
# program's choice: the library uses its caller's malloc. The three numbers follow libtool's rules and not the
# program's version: the first one changes when a program would have to be compiled again, the second when
# functions were added, the last one with each release.
LIBAMPTRAIN = libamptrain.so.0
LIBAMPTRAIN_FILE = $(LIBAMPTRAIN).1.1

noinst_LIBRARIES += libwithout.a
libwithout_a_SOURCES = alloc/slabs.c
libwithout_a_CPPFLAGS = $(AM_CPPFLAGS) -DWITHOUT_JEMALLOC

include_HEADERS = src/api/amptrain.h
apilibdir = $(libdir)
apilib_DATA = $(LIBAMPTRAIN_FILE) libamptrain.a
pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = amptrain.pc
CLEANFILES += $(LIBAMPTRAIN_FILE) $(LIBAMPTRAIN) libamptrain.so libamptrain.o libamptrain.a
EXTRA_DIST += src/api/libamptrain.map

WHOLE = -Wl,--whole-archive libapi.a libwithout.a -Wl,--no-whole-archive $(FLOORS)
if !SANITIZERS
ALL_DEFINED = -Wl,-z,defs
endif

LINK_LIBRARY = $(CC) -shared -Wl,-soname,$(LIBAMPTRAIN) -Wl,-z,now $(ALL_DEFINED) \
	-Wl,--version-script=$(srcdir)/src/api/libamptrain.map $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS)

$(LIBAMPTRAIN_FILE): $(FLOORS) libwithout.a src/api/libamptrain.map
	$(AM_V_CCLD)$(LINK_LIBRARY) -o $@ $(WHOLE) $(CUDA_LIBS) $(LIBRARY_LIBS)
	@$(LN_S) -f $@ $(LIBAMPTRAIN) && $(LN_S) -f $@ libamptrain.so

libamptrain.a: $(FLOORS) libwithout.a
	$(AM_V_at)$(CC) -r -nostdlib -o libamptrain.o $(WHOLE) && \
		$(OBJCOPY) --wildcard --keep-global-symbol='amptrain_*' libamptrain.o
	$(AM_V_AR)rm -f $@ && $(AR) $(ARFLAGS) $@ libamptrain.o && rm -f libamptrain.o

install-data-hook:
	cd $(DESTDIR)$(libdir) && $(LN_S) -f $(LIBAMPTRAIN_FILE) $(LIBAMPTRAIN) && \
		$(LN_S) -f $(LIBAMPTRAIN_FILE) libamptrain.so
uninstall-hook:
	cd $(DESTDIR)$(libdir) && rm -f $(LIBAMPTRAIN) libamptrain.so
