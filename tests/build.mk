dist_check_SCRIPTS += \
	tests/test_manual.sh \
	tests/test_completion.sh \
	tests/test_install.sh \
	tests/test_dist.sh
