# The acct program: subcommands, report, analysis (the latter's files are listed in analysis.mk).
-include analyzer/analysis.mk
ACCT_SRC := $(filter-out $(ANALYSIS_SRC),$(wildcard analyzer/main.c analyzer/devices.c analyzer/cmd_*.c analyzer/run_*.c \
	analyzer/report_*.c analyzer/emitter*.c))

.SECONDEXPANSION:
$(BUILD)/acct: $$(call objs,$(ACCT_SRC) $(ANALYSIS_SRC) $$(STORE_SRC))
	$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS) -lm -lpthread
ALL += $(BUILD)/acct
