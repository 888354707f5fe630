libtrain_a_SOURCES = 
