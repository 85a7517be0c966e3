# The analysis: what an op costs (cost_*), what memory is for (attr_*). analyzer/room.mk includes this.
ANALYSIS_SRC := analyzer/analyze.c $(wildcard analyzer/attr_*.c) $(wildcard analyzer/cost_*.c) $(wildcard analyzer/launch_*.c)
UNIT_test_cost = $(call objs,$(wildcard analyzer/cost_*.c))
UNIT_test_cost_lt = $(UNIT_test_cost)
UNIT_test_attr_live = $(call objs,analyzer/attr_live.c analyzer/attr_pool.c)
UNIT_test_mark_names = $(call objs,analyzer/attr_mark_names.c)

FUZZ_RULES_SRC := tests/fuzz/fuzz_user_rules.c analyzer/user_rules.c analyzer/attr_overrides.c analyzer/attr_sql.c analyzer/cost_types.c
$(BUILD)/fuzz/fuzz_user_rules: $(FUZZ_RULES_SRC) $(wildcard analyzer/user_rules.h analyzer/attr_overrides.h)
	@mkdir -p $(@D) $@.found
	$(SAY) "  FUZZ $@"
	$(Q)$(CLANG) $(CPPFLAGS_ALL) -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined $(FUZZ_RULES_SRC) -o $@ -lsqlite3
FUZZERS += $(BUILD)/fuzz/fuzz_user_rules
TEST_PROGRAMS += $(BUILD)/fuzz/fuzz_user_rules

UNIT_test_analyze_threads = $(call objs,$(ANALYSIS_SRC) $(STORE_SRC)) $(PTX_OBJ)
LIBS_test_analyze_threads = $(STORE_LIBS) $(PTX_LIBS) -l:libstdc++.a -lpthread
