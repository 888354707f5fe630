check_PROGRAMS += tests/ranks/test_launcher tests/ranks/test_tcp
dist_check_SCRIPTS += tests/ranks/test_gpus.sh tests/ranks/test_gpus_faults.sh tests/ranks/test_gpus_hosts.sh \
	tests/ranks/test_gpus_networks.sh \
	tests/ranks/test_ranks_stages.sh tests/ranks/test_ranks_tcp.sh tests/ranks/test_ranks_train.sh \
	tests/ranks/test_ranks_faults.sh tests/ranks/test_ranks_network.sh \
	tests/ranks/test_ranks_torture.sh tests/ranks/test_ranks_mpi.sh
noinst_PROGRAMS += tests/ranks/mpi_messages
EXTRA_DIST += tests/ranks/proxy.py

tests_ranks_test_launcher_SOURCES = tests/ranks/test_launcher.c
tests_ranks_test_launcher_LDADD = libcmd.a libcomm.a libbase.a -lcmocka

tests_ranks_test_tcp_SOURCES = tests/ranks/test_tcp.c
tests_ranks_test_tcp_LDADD = libcomm.a libbase.a -lcmocka

tests_ranks_mpi_messages_SOURCES = tests/ranks/mpi_messages.c
tests_ranks_mpi_messages_LDADD = libcomm.a libbase.a
