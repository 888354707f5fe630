dist_check_SCRIPTS += \
	tests/test_manual.sh \
	tests/test_completion.sh \
	tests/test_install.sh \
	tests/test_dist.sh \
	tests/test_quickstart.sh \
	tests/test_readme.sh

noinst_PROGRAMS += tests/make_pictures
tests_make_pictures_SOURCES = tests/make_pictures.c
tests_make_pictures_LDADD =
