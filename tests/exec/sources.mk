check_PROGRAMS += tests/exec/test_store tests/exec/test_exec tests/exec/test_inject \
	tests/exec/test_redundant_execution tests/exec/test_ahead tests/exec/test_device_allocators \
	tests/exec/test_pixels tests/exec/test_folded_store

tests_exec_test_store_SOURCES = tests/exec/test_store.c $(NET)
tests_exec_test_store_LDADD = $(GRAPH_LIBS) -lcmocka

tests_exec_test_exec_SOURCES = tests/exec/test_exec.c $(NET)
tests_exec_test_exec_LDADD = $(GRAPH_LIBS) -lcmocka

tests_exec_test_inject_SOURCES = tests/exec/test_inject.c tests/support/rounds.h $(NET)
tests_exec_test_inject_LDADD = $(GRAPH_LIBS) -lcmocka

tests_exec_test_redundant_execution_SOURCES = tests/exec/test_redundant_execution.c tests/support/caught.h \
	$(NET)
tests_exec_test_redundant_execution_LDADD = $(GRAPH_LIBS) -lcmocka

tests_exec_test_pixels_SOURCES = tests/exec/test_pixels.c $(NET)
tests_exec_test_pixels_LDADD = $(GRAPH_LIBS) libdata.a libbase.a -lcmocka

tests_exec_test_folded_store_SOURCES = tests/exec/test_folded_store.c src/explain/folded_store.c $(NET)
tests_exec_test_folded_store_LDADD = $(GRAPH_LIBS) -lcmocka

tests_exec_test_ahead_SOURCES = tests/exec/test_ahead.c src/session/step_queue.c $(NET)
tests_exec_test_ahead_LDADD = $(GRAPH_LIBS) -lcmocka

tests_exec_test_device_allocators_SOURCES = tests/exec/test_device_allocators.c tests/support/caught.h \
	tests/support/devices.h $(NET)
tests_exec_test_device_allocators_LDADD = $(GRAPH_LIBS) -lcmocka
