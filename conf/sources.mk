libconf_a_SOURCES = \
	conf/ini.c \
	conf/ini.h \
	conf/ini_list.c \
	conf/ini_parts.h \
	conf/ini_quotes.c \
	conf/options.c \
	conf/options.def \
	conf/options.h \
	conf/settings.c \
	conf/settings.h \
	conf/settings_help.c
