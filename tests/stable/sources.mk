dist_check_SCRIPTS += tests/stable/test_stable.sh
EXTRA_DIST += tests/stable/v0.1.0/exported.safetensors tests/stable/v0.1.0/few.pack tests/stable/v0.1.0/libamptrain.symbols tests/stable/v0.1.0/run.ini \
	tests/stable/v0.1.0/run/checkpoint-last.safetensors tests/stable/v0.1.0/run/config.ini \
	tests/stable/v0.1.0/run/metrics.jsonl tests/stable/v0.1.0/tiny.ini tests/stable/v1.0.0/libamptrain.abi
