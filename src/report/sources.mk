libreport_a_SOURCES = \
	src/report/memory_report.c \
	src/report/memory_report.h \
	src/report/mlflow.c \
	src/report/mlflow.h \
	src/report/run_export.c \
	src/report/run_export.h \
	src/report/run_records.c \
	src/report/run_records.h \
	src/report/run_report.c \
	src/report/run_report.h \
	src/report/run_report_classes.c \
	src/report/run_report_parts.h \
	src/report/run_report_profile.c \
	src/report/run_report_scores.c \
	src/report/run_report_targets.c \
	src/report/wandb.c \
	src/report/wandb.h
