dist_check_SCRIPTS += \
	tests/test_manual.sh \
	tests/test_examples.sh \
	tests/test_completion.sh \
	tests/test_install.sh \
	tests/test_dist.sh \
	tests/test_quickstart.sh
EXTRA_DIST += tests/odd_pictures.py

noinst_PROGRAMS += tests/make_pictures tests/other_values
tests_make_pictures_SOURCES = tests/make_pictures.c
tests_make_pictures_LDADD =
tests_other_values_SOURCES = tests/other_values.c
tests_other_values_LDADD = libconf.a libbase.a
