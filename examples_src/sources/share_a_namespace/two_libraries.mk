# make          builds both libraries
# make debug    prints what they are built with
# make DEBUG=1  builds them for a debugger
#
# Run it in the root of the repository: make -f examples_src/sources/share_a_namespace/two_libraries.mk

# [settings]
PYTHON ?= python
BUILD ?= build/make
# Found without `import torch`, which would be the slowest part of every call of make.
LOOK := from importlib.util import find_spec as find
TORCH := $(shell $(PYTHON) -c '$(LOOK); print(*find("torch").submodule_search_locations)')
TARGET_VERSION := 0x020b000000000000

ifeq ($(DEBUG),1)
OPTIMIZE := -O0 -g
else
OPTIMIZE := -O3 -g0
endif
CXXFLAGS := -std=c++20 -fPIC -fvisibility=hidden $(OPTIMIZE)
CPPFLAGS := -isystem $(TORCH)/include -DTORCH_TARGET_VERSION=$(TARGET_VERSION)
CPPFLAGS += -DNAME=matmul -DOPEN_NAMESPACE=STABLE_TORCH_LIBRARY
LDLIBS := -L$(TORCH)/lib -ltorch_cpu -lc10
# [/settings]

# [rules]
LIBRARIES := $(BUILD)/first_ops.so $(BUILD)/second_ops.so

all: $(LIBRARIES)

# -MD notes every header of an object, those of torch too: a new torch, a new build.
$(LIBRARIES:.so=.o): $(BUILD)/%.o: examples_src/sources/share_a_namespace/two_libraries.cpp
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) $(CPPFLAGS) -MD -MP -DNAMESPACE=$* -c $< -o $@

# Without --no-undefined a missing library is found when yours is loaded.
$(LIBRARIES): $(BUILD)/%.so: $(BUILD)/%.o
	$(CXX) -shared $< -o $@ -Wl,--no-undefined $(LDLIBS)

-include $(LIBRARIES:.so=.d)
# [/rules]

debug:
	@echo "compiler  $(CXX): $$($(CXX) --version | head -n 1)"
	@echo "torch     $(TORCH)"
	@echo "flags     $(CXXFLAGS)"
	@echo "libraries $(LIBRARIES)"

clean:
	$(RM) -r $(BUILD)

.PHONY: all debug clean
