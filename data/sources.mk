libdata_a_SOURCES = 
