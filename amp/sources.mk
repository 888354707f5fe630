libamp_a_SOURCES = 
