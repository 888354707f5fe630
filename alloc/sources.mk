liballoc_a_SOURCES = 
