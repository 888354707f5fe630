check_PROGRAMS += tests/conf/test_ini tests/conf/test_ini_before tests/conf/test_settings

tests_conf_test_ini_SOURCES = tests/conf/test_ini.c tests/support/caught.h
tests_conf_test_ini_LDADD = libconf.a libbase.a -lcmocka

tests_conf_test_ini_before_SOURCES = tests/conf/test_ini_before.c tests/support/caught.h
tests_conf_test_ini_before_LDADD = libconf.a libbase.a -lcmocka

tests_conf_test_settings_SOURCES = tests/conf/test_settings.c tests/support/caught.h
tests_conf_test_settings_LDADD = libconf.a libbase.a -lcmocka
