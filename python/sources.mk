EXTRA_DIST += python/wheel.py python/wheel-program.c python/amptrain-script python/amptrain/__init__.py python/amptrain/_library.py \
	python/amptrain/py.typed
CLEANFILES += wheel-library wheel-main.o wheel-program *.whl
PYTHON3 = python3

# The library is the program, too, which is its main and jemalloc, so that a package has all code once. Both find
# the libraries beside them, and what these need (RPATH, which counts for those, too), as nothing but the package's
# own folder is known.
wheel-main.o: src/main.c
	$(AM_V_CC)$(COMPILE) -fvisibility=default -Dmain=amptrain_main -Wno-missing-prototypes -c -o $@ \
		$(srcdir)/src/main.c
wheel-library: wheel-main.o $(FLOORS) libwithout.a src/api/libamptrain.map
	$(AM_V_CCLD)$(LINK_LIBRARY) -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN' -o $@ wheel-main.o $(WHOLE) \
		$(CUDA_LIBS) $(LIBRARY_LIBS)
wheel-program: python/wheel-program.c wheel-library
	$(AM_V_CCLD)$(CC) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -Wl,--no-as-needed \
		-Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $(srcdir)/python/wheel-program.c \
		$(filter -ljemalloc,$(LIBS)) ./wheel-library -Wl,--allow-shlib-undefined

wheel: wheel-library wheel-program
	$(AM_V_GEN)STRIP='$(STRIP)' $(PYTHON3) $(srcdir)/python/wheel.py $(PACKAGE_VERSION) $(srcdir) . .
.PHONY: wheel
