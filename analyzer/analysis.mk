# The analysis: what an op costs (cost_*), what memory is for (attr_*). analyzer/room.mk includes this.
ANALYSIS_SRC := analyzer/analyze.c $(wildcard analyzer/attr_*.c) $(wildcard analyzer/cost_*.c)
