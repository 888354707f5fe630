libconf_a_SOURCES = 
