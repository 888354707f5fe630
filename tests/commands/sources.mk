dist_check_SCRIPTS += tests/commands/test_average.sh tests/commands/test_commands.sh \
	tests/commands/test_compare.sh tests/commands/test_sweep.sh tests/commands/test_confusion.sh \
	tests/commands/test_embed.sh tests/commands/test_explain.sh tests/commands/test_forecast_table.sh \
	tests/commands/test_identity_network.sh tests/commands/test_init.sh tests/commands/test_init_masks.sh tests/commands/test_masks_packed.sh tests/commands/test_masks_wrong.sh tests/commands/test_knn.sh tests/commands/test_predict_masks.sh \
	tests/commands/test_lr.sh tests/commands/test_map.sh tests/commands/test_pictures_page.sh \
	tests/commands/test_packing.sh \
	tests/commands/test_predict.sh tests/commands/test_plausible.sh tests/commands/test_profile.sh \
	tests/commands/test_bombs.sh tests/commands/test_caches.sh tests/commands/test_step_times.sh tests/commands/test_refusals.sh tests/commands/test_report.sh \
	tests/commands/test_identity_data.sh tests/commands/test_summary.sh tests/commands/test_trained.sh \
	tests/commands/test_largest.sh tests/commands/test_small_sets.sh
