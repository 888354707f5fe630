check_PROGRAMS += tests/test_ini tests/test_ini_before tests/test_settings
tests_test_ini_SOURCES = tests/test_ini.c tests/caught.h
tests_test_ini_before_SOURCES = tests/test_ini_before.c tests/caught.h
tests_test_ini_LDADD = libconf.a libbase.a -lcmocka
tests_test_ini_before_LDADD = libconf.a libbase.a -lcmocka
tests_test_settings_SOURCES = tests/test_settings.c tests/caught.h
tests_test_settings_LDADD = libconf.a libbase.a -lcmocka
