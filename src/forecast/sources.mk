libforecast_a_SOURCES = \
	src/forecast/best_pipeline.c \
	src/forecast/best_pipeline.h \
	src/forecast/forecast.c \
	src/forecast/forecast.h \
	src/forecast/forecast_print.c \
	src/forecast/forecast_print.h \
	src/forecast/measured_times.c \
	src/forecast/measured_times.h \
	src/forecast/memory_advice.c \
	src/forecast/memory_advice.h \
	src/forecast/memory_map.c \
	src/forecast/memory_map.h \
	src/forecast/memory_map_draw.c \
	src/forecast/memory_map_frame.c \
	src/forecast/memory_map_parts.h \
	src/forecast/memory_map_print.c \
	src/forecast/preflight.c \
	src/forecast/preflight.h \
	src/forecast/step_time.c \
	src/forecast/step_time.h
