check_PROGRAMS += tests/train/test_schedule tests/train/test_records tests/train/test_gradcam \
	tests/train/test_progress tests/train/test_results tests/train/test_whiten tests/train/test_views \
	tests/train/test_traces tests/train/test_task tests/train/test_memory_map tests/train/test_timeline \
	tests/train/test_feed tests/train/test_tiling tests/train/test_scores

tests_train_test_schedule_SOURCES = tests/train/test_schedule.c
tests_train_test_schedule_LDADD = $(LDADD) -lcmocka

tests_train_test_records_SOURCES = tests/train/test_records.c tests/support/caught.h
tests_train_test_records_LDADD = libtrain.a libformat.a libbase.a -lcmocka

tests_train_test_gradcam_SOURCES = tests/train/test_gradcam.c tests/support/caught.h $(PLACE)
tests_train_test_gradcam_LDADD = $(LDADD) -lcmocka

tests_train_test_progress_SOURCES = tests/train/test_progress.c
tests_train_test_progress_LDADD = libtrain.a libbase.a -lm -lcmocka

tests_train_test_results_SOURCES = tests/train/test_results.c
tests_train_test_results_LDADD = $(LDADD) -lcmocka

tests_train_test_whiten_SOURCES = tests/train/test_whiten.c
tests_train_test_whiten_LDADD = $(LDADD) -lcmocka

tests_train_test_views_SOURCES = tests/train/test_views.c
tests_train_test_views_LDADD = $(LDADD) -lcmocka

tests_train_test_traces_SOURCES = tests/train/test_traces.c
tests_train_test_traces_LDADD = libbase.a -ljansson -lcmocka -lm

tests_train_test_task_SOURCES = tests/train/test_task.c
tests_train_test_task_LDADD = $(LDADD) -lcmocka

tests_train_test_memory_map_SOURCES = tests/train/test_memory_map.c
tests_train_test_memory_map_LDADD = $(LDADD) -lcmocka

tests_train_test_timeline_SOURCES = tests/train/test_timeline.c
tests_train_test_timeline_LDADD = libmeasure.a libbase.a -ljansson -lcmocka -lm

tests_train_test_feed_SOURCES = tests/train/test_feed.c
tests_train_test_feed_LDADD = $(LDADD) -lcmocka

tests_train_test_tiling_SOURCES = tests/train/test_tiling.c $(PLACE)
tests_train_test_tiling_LDADD = $(LDADD) -lcmocka

tests_train_test_scores_SOURCES = tests/train/test_scores.c
tests_train_test_scores_LDADD = $(LDADD) -lcmocka
