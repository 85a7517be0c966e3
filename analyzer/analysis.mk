# The analysis: what an op costs (cost_*), what memory is for (attr_*). analyzer/room.mk includes this.
ANALYSIS_SRC := analyzer/analyze.c $(wildcard analyzer/attr_*.c) $(wildcard analyzer/cost_*.c) $(wildcard analyzer/launch_*.c)
UNIT_test_cost = $(call objs,$(wildcard analyzer/cost_*.c))
UNIT_test_cost_lt = $(UNIT_test_cost)
UNIT_test_attr_live = $(call objs,analyzer/attr_live.c analyzer/attr_pool.c)
UNIT_test_mark_names = $(call objs,analyzer/attr_mark_names.c)
