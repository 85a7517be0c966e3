# plan/: the napkin: formulas of training as pure functions of numbers. Nothing here reads a trace, a device or a file.
PLAN_SRC := $(wildcard plan/*.c)

UNIT_test_plan_number = $(call objs,plan/plan_number.c)
UNIT_test_plan_model = $(call objs,plan/plan_model.c plan/plan_number.c)
UNIT_test_plan_memory = $(call objs,plan/plan_memory.c plan/plan_memory_recipes.c plan/plan_model.c plan/plan_number.c)
UNIT_test_plan_training = $(call objs,plan/plan_convention.c plan/plan_formats.c plan/plan_model.c plan/plan_number.c plan/plan_training.c)
LIBS_test_plan_training = -lm
