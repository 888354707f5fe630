dist_check_SCRIPTS += tests/test_commands.sh tests/test_resume.sh
EXTRA_DIST += tests/tiny.sh
