dist_check_SCRIPTS += tests/build/test_floors.sh tests/build/test_manual.sh tests/build/test_examples.sh \
	tests/build/test_completion.sh tests/build/test_install.sh tests/build/test_dist.sh \
	tests/build/test_quickstart.sh tests/build/test_reproducible.sh
EXTRA_DIST += tests/build/odd_pictures.py
