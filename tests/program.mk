# The program's commands, each by a script.
dist_check_SCRIPTS += \
	tests/test_average.sh \
	tests/test_channels.sh \
	tests/test_classes.sh \
	tests/test_commands.sh \
	tests/test_compare.sh \
	tests/test_sweep.sh \
	tests/test_confusion.sh \
	tests/test_embed.sh \
	tests/test_explain.sh \
	tests/test_folder.sh \
	tests/test_forecast_table.sh \
	tests/test_gpu.sh \
	tests/test_gpus.sh \
	tests/test_gpus_faults.sh \
	tests/test_health.sh \
	tests/test_identity_network.sh \
	tests/test_init.sh \
	tests/test_knn.sh \
	tests/test_loading.sh \
	tests/test_lr.sh \
	tests/test_map.sh \
	tests/test_memory.sh \
	tests/test_packing.sh \
	tests/test_pictures.sh \
	tests/test_predict.sh \
	tests/test_probe.sh \
	tests/test_plausible.sh \
	tests/test_profile.sh \
	tests/test_recipes.sh \
	tests/test_shapes.sh \
	tests/test_step_times.sh \
	tests/test_refusals.sh \
	tests/test_repeat.sh \
	tests/test_report.sh \
	tests/test_identity_data.sh \
	tests/test_resume.sh \
	tests/test_resume_options.sh \
	tests/test_summary.sh \
	tests/test_trained.sh
EXTRA_DIST += tests/tiny.sh tests/two.sh

check_PROGRAMS += tests/test_traces
tests_test_traces_SOURCES = tests/test_traces.c
tests_test_traces_LDADD = libbase.a -ljansson -lcmocka -lm

check_PROGRAMS += tests/test_task
tests_test_task_SOURCES = tests/test_task.c
tests_test_task_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_memory_map
tests_test_memory_map_SOURCES = tests/test_memory_map.c
tests_test_memory_map_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_timeline
tests_test_timeline_SOURCES = tests/test_timeline.c
tests_test_timeline_LDADD = libmeasure.a libbase.a -ljansson -lcmocka -lm

check_PROGRAMS += tests/test_feed
tests_test_feed_SOURCES = tests/test_feed.c
tests_test_feed_LDADD = $(LDADD) -lcmocka

# The program, all of it, with calls that can be made to fail: of the C library, the kernel and the device.
dist_check_SCRIPTS += tests/test_faults.sh tests/test_ladder.sh
noinst_PROGRAMS += tests/faulty
tests_faulty_SOURCES = $(amptrain_SOURCES) tests/faults.c
tests_faulty_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=main -Wl,--wrap=pthread_create -Wl,--wrap=device_open \
	-Wl,--wrap=store_open -Wl,--wrap=exec_collect
dist_check_SCRIPTS += tests/test_largest.sh tests/test_losses.sh tests/test_tables.sh tests/test_tasks.sh

# The program, all of it, telling what it holds at the end of every epoch.
dist_check_SCRIPTS += tests/test_endurance.sh
noinst_PROGRAMS += tests/held
tests_held_SOURCES = $(amptrain_SOURCES) tests/held.c
tests_held_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=report_epoch

check_PROGRAMS += tests/test_launcher
tests_test_launcher_SOURCES = tests/test_launcher.c
tests_test_launcher_LDADD = libcmd.a libcomm.a libbase.a -lcmocka

# Runs of several ranks.
dist_check_SCRIPTS += tests/test_ranks_stages.sh tests/test_ranks_train.sh tests/test_ranks_faults.sh \
	tests/test_ranks_torture.sh tests/test_ranks_mpi.sh
noinst_PROGRAMS += tests/mpi_messages
tests_mpi_messages_SOURCES = tests/mpi_messages.c
tests_mpi_messages_LDADD = libcomm.a libbase.a

# Micro-batches on streams of one device; losses that are divided by what a whole batch has.
dist_check_SCRIPTS += tests/test_microbatches.sh tests/test_class_weights.sh
dist_check_SCRIPTS += tests/test_transformer.sh
