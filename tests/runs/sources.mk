dist_check_SCRIPTS += tests/runs/test_best.sh tests/runs/test_channels.sh tests/runs/test_classes.sh tests/runs/test_folder.sh \
	tests/runs/test_gpu.sh tests/runs/test_health.sh tests/runs/test_loading.sh tests/runs/test_memory.sh \
	tests/runs/test_pictures.sh tests/runs/test_probe.sh tests/runs/test_recipes.sh tests/runs/test_shapes.sh \
	tests/runs/test_repeat.sh tests/runs/test_restarts.sh tests/runs/test_resume.sh tests/runs/test_resume_options.sh \
	tests/runs/test_faults.sh tests/runs/test_ladder.sh tests/runs/test_losses.sh tests/runs/test_together.sh tests/runs/test_tables.sh \
	tests/runs/test_tasks.sh tests/runs/test_endurance.sh tests/runs/test_microbatches.sh \
	tests/runs/test_class_weights.sh tests/runs/test_masks_run.sh tests/runs/test_segment.sh tests/runs/test_transformer.sh tests/runs/test_resume_pairs.sh

if HAVE_LIBTIFF
dist_check_SCRIPTS += tests/runs/test_deep.sh
else
EXTRA_DIST += tests/runs/test_deep.sh
endif
