EXTRA_DIST += python/wheel.py python/amptrain-script python/amptrain/__init__.py python/amptrain/_library.py \
	python/amptrain/py.typed
CLEANFILES += wheel-library wheel-program *.whl
PYTHON3 = python3

# Both find the libraries beside them, and what these need (RPATH, which counts for those, too), as nothing but
# the package's own folder is known.
wheel-library: $(FLOORS) libwithout.a src/api/libamptrain.map
	$(AM_V_CCLD)$(LINK_LIBRARY) -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN' -o $@ $(WHOLE) $(CUDA_LIBS) \
		$(LIBRARY_LIBS)
wheel-program: $(amptrain_OBJECTS) $(FLOORS)
	$(AM_V_CCLD)$(LINK) -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib' $(amptrain_OBJECTS) $(LDADD) $(LIBS)

wheel: wheel-library wheel-program
	$(AM_V_GEN)STRIP='$(STRIP)' $(PYTHON3) $(srcdir)/python/wheel.py $(PACKAGE_VERSION) $(srcdir) . .
.PHONY: wheel
