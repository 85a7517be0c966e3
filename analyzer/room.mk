# The acct program: subcommands, report, analysis (the latter's files are listed in analysis.mk).
-include analyzer/analysis.mk
ACCT_SRC := $(filter-out $(ANALYSIS_SRC),$(wildcard analyzer/*.c))

.SECONDEXPANSION:
$(BUILD)/acct: $$(call objs,$(ACCT_SRC) $(ANALYSIS_SRC) $$(STORE_SRC) $$(PLAN_SRC)) $$(PTX_OBJ)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS) $(PTX_LIBS) -l:libstdc++.a -lm -lpthread
ALL += $(BUILD)/acct
$(BUILD)/static/acct: $$(call objs,$(ACCT_SRC) $(ANALYSIS_SRC) $$(STORE_SRC) $$(PLAN_SRC)) $$(PTX_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS_INSIDE) $(PTX_LIBS_INSIDE) -l:libstdc++.a -lm -lpthread
DIST += $(BUILD)/static/acct

# What the shells complete, by the option tables.
$(BUILD)/completion/acct: $(BUILD)/acct
	@mkdir -p $(@D)
	$(SAY) "  GEN $@"
	$(Q)$< completion bash > $@ && $< completion zsh > $(@D)/_acct && $< completion fish > $(@D)/acct.fish
ALL += $(BUILD)/completion/acct

# libacct(7) has the registry of environment variables.
$(BUILD)/man/libacct.7: docs/man/libacct.7.in include/acct/env.def
	@mkdir -p $(@D)
	$(SAY) "  GEN $@"
	$(Q)sed -n 's/^ENV(\([A-Z_0-9]*\), \([a-z]*\), "\(.*\)", "\(.*\)")$$/.TP\n.BR \1 " (\2, default \3)"\n\4/p' include/acct/env.def | \
	  sed -e 's/-/\\-/g' -e 's/default )/default empty)/' > $@.env
	$(Q)sed -e '/^@ENV@$$/{r $@.env' -e 'd}' $< > $@
	@rm -f $@.env
ALL += $(BUILD)/man/libacct.7

UNIT_test_kernels_occupancy = $(call objs,analyzer/kernels_occupancy.c)
$(BUILD)/obj/tests/unit/test_kernels_occupancy.o: ROOM_CFLAGS = -isystem $(CUDA_INC)

UNIT_test_memory_reconcile = $(call objs,$(filter-out analyzer/main.c analyzer/cmd_%.c analyzer/view.c analyzer/run_%.c analyzer/bench_%.c analyzer/plan_%.c,$(ACCT_SRC)) $(ANALYSIS_SRC) $(STORE_SRC) $(wildcard plan/*.c)) $(PTX_OBJ)
LIBS_test_memory_reconcile = $(STORE_LIBS) $(PTX_LIBS) -l:libstdc++.a
