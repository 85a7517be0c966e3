# trace/: the wire contract, the store, and acct-collect. The ring's writing side is compiled into libacct.so by preload/.

# schema.sql as a C string, so that the programs carry it.
$(BUILD)/gen/store_schema.h: trace/schema.sql
	@mkdir -p $(@D)
	{ echo 'static const char store_schema_sql[] ='; sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' $<; echo '    ;'; } > $@
$(BUILD)/obj/trace/store.o: $(BUILD)/gen/store_schema.h

STORE_SRC := trace/store.c trace/event_table.c
STORE_LIBS := -lsqlite3

UNIT_store = $(call objs,$(STORE_SRC))
LIBS_store = $(STORE_LIBS)
