libgraph_a_SOURCES = 
