# Which lines of host code the tests run: `make coverage`, in a build configured with --enable-coverage (gcc
# and lcov). Those that they do not run are named in tests/coverage/unreached, each under its reason.
EXTRA_DIST += tests/coverage/report tests/coverage/report.awk tests/coverage/unreached
CLEANFILES += coverage.info coverage.log

coverage: all
	@$(SHELL) $(srcdir)/tests/coverage/report begin $(abs_srcdir)
	@$(MAKE) check; tested=$$?; \
	$(SHELL) $(srcdir)/tests/coverage/report end $(abs_srcdir) && exit $$tested
.PHONY: coverage
