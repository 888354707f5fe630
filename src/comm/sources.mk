libcomm_a_SOURCES = \
	src/comm/comm.c \
	src/comm/comm.h \
	src/comm/compare.c \
	src/comm/compare.h \
	src/comm/cuda_mail.c \
	src/comm/cuda_mail.h \
	src/comm/group.c \
	src/comm/group.h \
	src/comm/host_file.c \
	src/comm/host_file.h \
	src/comm/mpi_ranks.c \
	src/comm/mpi_ranks.h \
	src/comm/nccl_exchange.c \
	src/comm/nccl_exchange.h \
	src/comm/pmix_ranks.c \
	src/comm/pmix_ranks.h \
	src/comm/shared.c \
	src/comm/shared.h \
	src/comm/shared_block.c \
	src/comm/shared_block.h \
	src/comm/shared_mail.c \
	src/comm/shared_parts.h
