# acct. `make`, `make demo`, `make check`, `make bench`, `make install`; `make help` lists the rest.
# Each room has its own room.mk; this file has what they share.
BUILD ?= build
# One spelling of a folder, or its objects would be made anew.
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
PREFIX ?= /usr/local
DESTDIR ?=
OPT ?= -O2 -g
SANITIZE ?=
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# As many jobs as processors unless -j says otherwise (`make check` and `make demo` are typed without).
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

# Where the toolkit, the libraries and python are: found, or installed where it may be, by scripts/deps.
NODEPS := help clean deps format uninstall asan ubsan tsan
GOALS := $(filter-out $(NODEPS),$(or $(MAKECMDGOALS),all))
ifneq ($(GOALS),)
include $(BUILD)/deps.mk
endif
$(BUILD)/deps.mk: scripts/deps
	@mkdir -p $(BUILD)
	@scripts/deps --output $@

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-missing-field-initializers
CPPFLAGS_ALL = -I. -Iinclude -I$(BUILD)/gen -D_GNU_SOURCE
CFLAGS_ALL = -std=c11 $(OPT) $(WARN) -fPIC -MMD -MP $(SANITIZE)
LDFLAGS_ALL = $(SANITIZE) $(LDFLAGS)

# Another compiler or other flags make every object anew: all depend on a file with the command line, written when it changes.
FLAGS := $(strip $(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(CFLAGS) $(LDFLAGS_ALL))
ifneq ($(FLAGS),$(strip $(file <$(BUILD)/flags)))
$(BUILD)/flags: changed
endif
$(BUILD)/flags:
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@
.PHONY: changed

# V=1 shows the command lines.
Q := $(if $(V),,@)
SAY := $(if $(V),@:,@echo)

# One rule for every C file of the tree: x/y.c → build/obj/x/y.o. A room adds flags for its own objects with a
# target-specific ROOM_CFLAGS; a change of x/room.mk makes x's objects anew.
.SECONDEXPANSION:
room_of = $(wildcard $(firstword $(subst /, ,$(1)))/room.mk)
$(BUILD)/obj/%.o: %.c $(BUILD)/flags $$(call room_of,$$*)
	@mkdir -p $(@D)
	$(SAY) "  CC $<"
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(ROOM_CFLAGS) $(CFLAGS) -c $< -o $@
$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags $$(call room_of,$$*)
	@mkdir -p $(@D)
	$(SAY) "  CC $<"
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(ROOM_CFLAGS) $(CFLAGS) -c $< -o $@
objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

ALL :=
DIST :=
BENCHES :=
TEST_PROGRAMS :=
include $(sort $(wildcard */room.mk))

.PHONY: all deps demo demo-linear check bench dist install uninstall clean help format asan ubsan tsan unit
all: $(ALL)

help:
	@sed -n 's/^## //p' $(firstword $(MAKEFILE_LIST))
## make            build everything into $(BUILD) (default: build)
## make demo       train a small GPT under acct and print the report; make demo-linear: the linear model
## make check      all tests; the last line is "N passed, N failed, N skipped"; T="tests/test_x.py -k y" runs some
## make lecture    memory of the sample program: acct plan = the program's account = measured, as a table; LECTURE_RUNS=N: a part of it
## make public     programs that others wrote, from checkouts of theirs: LLMC=… CUDA_SAMPLES=… SGEMM=…
## make bench      ratios against named peers; BENCH_SHORT=1 for a quick look
## make install    into $(PREFIX) (default: /usr/local); DESTDIR is honoured; make uninstall takes it away
## make dist       one relocatable folder and its archive, for machines with nothing but libc
## make deps       what the build needs, and whether it is there; installs what is missing where it may
## make asan       unit tests under AddressSanitizer and UBSan (make ubsan, make tsan likewise), in a folder of their own
## make format     clang-format over the tree
## make clean      remove $(BUILD)
##                 CC=clang, OPT="-O0 -g", SANITIZE=…, BUILD=folder, V=1 are taken; a change of compiler or flags rebuilds
deps:
	@scripts/deps --with-bench --output $(BUILD)/deps.mk
	@scripts/deps --check
clean:
	rm -rf $(BUILD)
format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

demo: all
	@scripts/demo $(BUILD)
demo-linear: all
	@scripts/demo $(BUILD) linear
bench: all $(BENCHES)
	@BUILD=$(abspath $(BUILD)) bench/run $(BENCHES)

# Sanitizers: every unit-test program, built in a folder of its own. (Whole programs are not run so: libacct.so is preloaded
# into programs that are not instrumented.)
asan: SAN = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
ubsan: SAN = -fsanitize=undefined -fno-sanitize-recover=undefined
tsan: SAN = -fsanitize=thread
asan ubsan tsan:
	$(MAKE) BUILD=build-$@ SANITIZE="$(SAN)" unit
unit: $(UNIT_BIN)
	BUILD=$(abspath $(BUILD)) $(PYTHON) tests/run tests/unit

INSTALL_BIN = acct acct-collect acct-bench
INSTALL_DOC = README.md NEWS.md LICENSE $(wildcard docs/*.md docs/*.profile)
INSTALL_COMPLETION = share/bash-completion/completions/acct share/zsh/site-functions/_acct share/fish/vendor_completions.d/acct.fish
INSTALL_MAN = $(wildcard docs/man/*.1 $(BUILD)/man/*.1)
INSTALL_MAN5 = $(wildcard docs/man/*.5)
INSTALL_MAN7 = $(wildcard docs/man/*.7 $(BUILD)/man/*.7)
install: all
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/acct/vgpu include/acct share/man/man1 share/man/man5 share/man/man7 share/doc/acct $(dir $(INSTALL_COMPLETION)))
	install $(addprefix $(BUILD)/,$(INSTALL_BIN)) $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/libacct.so $(DESTDIR)$(PREFIX)/lib/
	cp -P --no-preserve=ownership $(BUILD)/vgpu/lib*.so* $(DESTDIR)$(PREFIX)/lib/acct/vgpu/
	install -m 644 $(wildcard include/acct/*.h include/acct/*.def) $(DESTDIR)$(PREFIX)/include/acct/
	install -m 644 $(INSTALL_DOC) $(DESTDIR)$(PREFIX)/share/doc/acct/
	$(if $(INSTALL_MAN),install -m 644 $(INSTALL_MAN) $(DESTDIR)$(PREFIX)/share/man/man1/)
	$(if $(INSTALL_MAN5),install -m 644 $(INSTALL_MAN5) $(DESTDIR)$(PREFIX)/share/man/man5/)
	$(if $(INSTALL_MAN7),install -m 644 $(INSTALL_MAN7) $(DESTDIR)$(PREFIX)/share/man/man7/)
	$(foreach f,$(INSTALL_COMPLETION),install -m 644 $(BUILD)/completion/$(notdir $(f)) $(DESTDIR)$(PREFIX)/$(f) &&) :
	@[ -n "$(DESTDIR)" ] || echo "Installed. For LD_PRELOAD=libacct.so by its bare name, type: ldconfig   (and $(PREFIX)/lib must be in /etc/ld.so.conf)"
dist: all $(DIST)
	@scripts/dist $(BUILD)
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(INSTALL_BIN)) $(DESTDIR)$(PREFIX)/lib/libacct.so $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALL_COMPLETION))
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/man/,$(addprefix man1/,$(notdir $(INSTALL_MAN))) $(addprefix man5/,$(notdir $(INSTALL_MAN5))) $(addprefix man7/,$(notdir $(INSTALL_MAN7))))
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,lib/acct include/acct share/doc/acct)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
