dist_check_SCRIPTS += tests/api/test_libamptrain.sh tests/api/test_wheel.sh
EXTRA_DIST += tests/api/client.py examples/classify.c examples/embed.c examples/segment.c examples/classify.py tests/api/client.cc

# Programs that have amptrain.h and the shared library, as a user's.
noinst_PROGRAMS += examples/classify examples/embed examples/segment tests/api/client tests/api/client_masks
CLIENT_INCLUDES = -D_GNU_SOURCE -I$(top_srcdir)/src/api
CLIENT_LINKED = $(AM_LDFLAGS) -Wl,-rpath,$(abs_top_builddir)
examples_classify_SOURCES = examples/classify.c
examples_classify_CPPFLAGS = $(CLIENT_INCLUDES)
examples_classify_LDFLAGS = $(CLIENT_LINKED)
examples_classify_LDADD = $(LIBAMPTRAIN_FILE)
examples_embed_SOURCES = examples/embed.c
examples_embed_CPPFLAGS = $(CLIENT_INCLUDES)
examples_embed_LDFLAGS = $(CLIENT_LINKED)
examples_embed_LDADD = $(LIBAMPTRAIN_FILE)
examples_segment_SOURCES = examples/segment.c
examples_segment_CPPFLAGS = $(CLIENT_INCLUDES)
examples_segment_LDFLAGS = $(CLIENT_LINKED)
examples_segment_LDADD = $(LIBAMPTRAIN_FILE)
tests_api_client_SOURCES = tests/api/client.c
tests_api_client_CPPFLAGS = $(CLIENT_INCLUDES)
tests_api_client_LDFLAGS = $(CLIENT_LINKED)
tests_api_client_LDADD = $(LIBAMPTRAIN_FILE)
tests_api_client_masks_SOURCES = tests/api/client_masks.c
tests_api_client_masks_CPPFLAGS = $(CLIENT_INCLUDES)
tests_api_client_masks_LDFLAGS = $(CLIENT_LINKED)
tests_api_client_masks_LDADD = $(LIBAMPTRAIN_FILE)
