libdevice_a_SOURCES = 
