# Long forms of tests, which print their figures. Each is a test of `make check` as well, whose short form it
# is there; `rounds` (tap.sh and rounds.h in tests/support) says how long it is to be. One line a test.
TORTURE =
TORTURE += tests/runs/test_resume.sh tests/runs/test_resume_options.sh tests/runs/test_resume_pairs.sh \
	tests/runs/test_best.sh
TORTURE += tests/device/test_mail tests/ranks/test_launcher tests/ranks/test_ranks_train.sh \
	tests/ranks/test_ranks_torture.sh
TORTURE += tests/ranks/test_ranks_faults.sh tests/ranks/test_ranks_mpi.sh tests/ranks/test_ranks_network.sh
TORTURE += tests/runs/test_repeat.sh tests/exec/test_inject
TORTURE += tests/fuzz/test_fuzz.sh
TORTURE += tests/graph/test_onnx_logits.sh tests/graph/test_python_peers.sh tests/graph/test_pretrained.sh \
	tests/graph/test_dense_peers.sh tests/graph/test_pixel_metrics.sh tests/checkpoint/test_identify
TORTURE += tests/checkpoint/test_checkpoint tests/compile/test_compile \
	tests/compile/test_pass_text
TORTURE += tests/runs/test_faults.sh
TORTURE += tests/build/test_reproducible.sh
TORTURE += tests/runs/test_endurance.sh tests/commands/test_small_sets.sh
TORTURE += tests/data/test_loader tests/data/test_listing tests/kernels/test_images
TORTURE += tests/data/test_dataset_identity tests/alloc/test_pack tests/alloc/test_cache \
	tests/alloc/test_pinned tests/compile/test_plan

EXTRA_DIST += tests/support/process.h tests/support/rounds.h

# AMPTRAIN_ROUNDS is another number of rounds than the long form's; TORTURE='tests/runs/test_X.sh' picks.
torture: all
	AMPTRAIN_TORTURE=yes $(MAKE) check TESTS='$(TORTURE)' \
		LOG_DRIVER_FLAGS=--comments SH_LOG_DRIVER_FLAGS=--comments
.PHONY: torture
