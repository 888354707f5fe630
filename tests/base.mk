# Of every test, so that it is in no list of sources.
EXTRA_DIST += tests/unit.h

# Of tests in which calls of the system fail, each in turn.
REFUSE = tests/refuse.c tests/refuse.h
REFUSE_LINKED = $(AM_LDFLAGS) -Wl,--wrap=pread -Wl,--wrap=pwrite -Wl,--wrap=fsync -Wl,--wrap=ftruncate \
	-Wl,--wrap=fstat -Wl,--wrap=close -Wl,--wrap=memfd_create -Wl,--wrap=mmap -Wl,--wrap=memory_try \
	-Wl,--wrap=linkat -Wl,--wrap=renameat -Wl,--wrap=getentropy

check_PROGRAMS += tests/test_base tests/test_field tests/test_numbers tests/test_scaler
tests_test_base_SOURCES = tests/test_base.c
tests_test_base_LDADD = libbase.a -lcmocka
tests_test_field_SOURCES = tests/test_field.c
tests_test_field_LDADD = libbase.a -lcmocka
tests_test_numbers_SOURCES = tests/test_numbers.c
tests_test_numbers_LDADD = libbase.a -lcmocka
tests_test_scaler_SOURCES = tests/test_scaler.c
tests_test_scaler_LDADD = libamp.a libbase.a -lcmocka

dist_check_SCRIPTS += tests/test_floors.sh

check_PROGRAMS += tests/test_watch
tests_test_watch_SOURCES = tests/test_watch.c
tests_test_watch_LDADD = libbase.a -lcmocka

check_PROGRAMS += tests/test_files
tests_test_files_SOURCES = tests/test_files.c tests/caught.h
tests_test_files_LDADD = libbase.a -lcmocka

check_PROGRAMS += tests/test_library
tests_test_library_SOURCES = tests/test_library.c
tests_test_library_LDADD = libbase.a -lcmocka -lm

check_PROGRAMS += tests/test_machine
tests_test_machine_SOURCES = tests/test_machine.c
tests_test_machine_LDADD = libbase.a -lcmocka

check_PROGRAMS += tests/test_host
tests_test_host_SOURCES = tests/test_host.c tests/files.c tests/files.h
tests_test_host_LDADD = libbase.a -lcmocka
