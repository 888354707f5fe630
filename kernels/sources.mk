libkernels_a_SOURCES = 
