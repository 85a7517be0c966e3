# Tests. A unit test tests/unit/test_x.c becomes $(BUILD)/tests/test_x; what it links with is UNIT_x (objects), LIBS_x
# (or UNIT_test_x, LIBS_test_x).
# A test program tests/programs/x.c becomes $(BUILD)/tests/x: a CUDA program as a user would write one, linked like train,
# and with PROG_x (objects) and LIBS_x where a room.mk names some.
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/tests/%)
PROG_SRC := $(wildcard tests/programs/*.c)
PROG_BIN := $(PROG_SRC:tests/programs/%.c=$(BUILD)/tests/%)
TEST_PROGRAMS += $(UNIT_BIN) $(PROG_BIN)

.SECONDEXPANSION:
$(UNIT_BIN): $(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $$(UNIT_$$(subst test_,,$$*)) $$(UNIT_$$*)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(LIBS_$(subst test_,,$*)) $(LIBS_$*) -lcmocka -lm -lpthread
$(PROG_BIN): $(BUILD)/tests/%: $(BUILD)/obj/tests/programs/%.o $$(PROG_$$*)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ -L$(CUDA_LIB) -l:libcudart.so.13 -l:libcublas.so.13 $(LIBS_$*) -Wl,--allow-shlib-undefined -lm -lpthread
$(PROG_BIN:$(BUILD)/tests/%=$(BUILD)/obj/tests/programs/%.o): ROOM_CFLAGS = -isystem $(CUDA_INC)

include tests/zoo/zoo.mk

# Made by `make check`, and before it by .ci/run.
.PHONY: test-programs
test-programs: $$(TEST_PROGRAMS)
check: all $$(TEST_PROGRAMS)
	BUILD=$(abspath $(BUILD)) $(PYTHON) tests/run $(T)

# Programs that others wrote, from checkouts of theirs: make public LLMC=… CUDA_SAMPLES=… SGEMM=…
.PHONY: public
public: all
	@test -n "$(LLMC)$(CUDA_SAMPLES)$(SGEMM)" || { echo "make public: name a checkout: LLMC=/path/to/llm.c, CUDA_SAMPLES=/path/to/cuda-samples, SGEMM=/path/to/SGEMM_CUDA"; exit 2; }
	BUILD=$(abspath $(BUILD)) LLMC=$(LLMC) CUDA_SAMPLES=$(CUDA_SAMPLES) SGEMM=$(SGEMM) $(PYTHON) tests/run tests/public

# Train's choices under acct against its own account: 120 runs, or as many as MATRIX_RUNS says.
MATRIX_RUNS ?= 120
.PHONY: matrix
matrix: all
	BUILD=$(abspath $(BUILD)) $(PYTHON) tests/matrix_run.py --runs $(MATRIX_RUNS)

# What acct plan says of train's memory, what train says itself, and what acct measures: all of the grid, or LECTURE_RUNS of it.
.PHONY: lecture
lecture: all
	BUILD=$(abspath $(BUILD)) $(PYTHON) tests/lecture_run.py $(if $(LECTURE_RUNS),--runs $(LECTURE_RUNS))

# All of the oracle's programs, random ones and the kinds that it does not draw, through the analyzer: minutes.
.PHONY: oracle
oracle: $(BUILD)/acct
	BUILD=$(abspath $(BUILD)) $(PYTHON) tests/oracle_full.py $(ORACLE_ARGS)

# Programs with kernels of their own in many manners.
KINDS_OBJ := $(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard tests/programs/kinds_*.cu))
$(KINDS_OBJ): $(BUILD)/obj/%.o: %.cu tests/programs/kinds.h tests/room.mk
	@mkdir -p $(@D)
	$(SAY) "  NVCC $<"
	$(Q)$(NVCC) -I. -std=c++17 -Xcompiler -Wall,-Wextra -gencode arch=compute_80,code=compute_80 -c $< -o $@
$(BUILD)/tests/kinds: $(KINDS_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -cudart shared $^ -o $@ -L$(CUDA_LIB) -l:libcublas.so.13 -Xlinker --allow-shlib-undefined
TEST_PROGRAMS += $(BUILD)/tests/kinds
