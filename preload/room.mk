UNIT_test_ring := $(call objs,trace/ring.c)
