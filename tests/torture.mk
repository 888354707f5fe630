# Long forms of tests, which print their figures. Each is a test of `make check` as well, whose short form it
# is there; `rounds` (tests/tap.sh, tests/rounds.h) says how long it is to be. One line a test.
TORTURE =
TORTURE += tests/test_resume.sh tests/test_resume_options.sh
TORTURE += tests/test_mail tests/test_launcher tests/test_ranks_train.sh tests/test_ranks_torture.sh
TORTURE += tests/test_ranks_faults.sh tests/test_ranks_mpi.sh
TORTURE += tests/test_repeat.sh tests/test_inject
TORTURE += tests/test_fuzz.sh
TORTURE += tests/test_onnx_logits.sh tests/test_python_peers.sh tests/test_pretrained.sh tests/test_identify
TORTURE += tests/test_checkpoint tests/test_compile
TORTURE += tests/test_faults.sh
TORTURE += tests/test_endurance.sh
TORTURE += tests/test_loader tests/test_listing tests/test_images
TORTURE += tests/test_dataset_identity tests/test_pack tests/test_cache tests/test_pinned tests/test_plan

EXTRA_DIST += tests/process.h tests/rounds.h

# AMPTRAIN_ROUNDS is another number of rounds than the long form's; TORTURE='tests/test_X.sh' picks.
torture: all
	AMPTRAIN_TORTURE=yes $(MAKE) check TESTS='$(TORTURE)' \
		LOG_DRIVER_FLAGS=--comments SH_LOG_DRIVER_FLAGS=--comments
.PHONY: torture
