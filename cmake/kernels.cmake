# The kernel library: emitted at configure time by plain Python, compiled once per instruction set.
# The emitter runs in a process without the native core. Its sources are configure dependencies, so a
# changed declaration emits again; only files whose text changed are compiled again.

file(GLOB emitter CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/rushlight/*.py"
  "${PROJECT_SOURCE_DIR}/rushlight/ops/*.py"
  "${PROJECT_SOURCE_DIR}/rushlight/loops/*.py")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${emitter})

set(fresh "${PROJECT_BINARY_DIR}/kernels.new")
set(kernels "${PROJECT_BINARY_DIR}/kernels")
file(REMOVE_RECURSE "${fresh}")
file(MAKE_DIRECTORY "${fresh}" "${kernels}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
    "${Python_EXECUTABLE}" cmake/emit_kernels.py --out "${fresh}"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "rushlight: the emitter of kernels failed (cmake/emit_kernels.py)")
endif()

file(GLOB old RELATIVE "${kernels}" "${kernels}/*")
file(GLOB new RELATIVE "${fresh}" "${fresh}/*")
foreach(name IN LISTS old)
  if(NOT name IN_LIST new)
    file(REMOVE "${kernels}/${name}")
  endif()
endforeach()
foreach(name IN LISTS new)
  file(COPY_FILE "${fresh}/${name}" "${kernels}/${name}" ONLY_IF_DIFFERENT)
endforeach()
file(GLOB kernel_sources "${kernels}/*.cpp")
list(LENGTH kernel_sources count)
message(STATUS "rushlight: ${count} kernel files, instruction sets ${RUSHLIGHT_ISAS}")

# No contraction: the numerics are a contract. No OpenMP: rt splits loops over threads. Loops over a
# fold's 16 lanes are unrolled whole, or the lanes live in memory (amax of float64: 2.5 times).
set(kernel_flags -O2 -fpeel-loops --param=max-completely-peel-times=8 -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -fopenmp-simd -fPIC -fvisibility=hidden -w)
set(kernel_flags_v4 -mprefer-vector-width=512)
foreach(isa IN LISTS RUSHLIGHT_ISAS)
  add_library(kernels_${isa} MODULE ${kernel_sources})
  target_include_directories(kernels_${isa} PRIVATE "${PROJECT_SOURCE_DIR}/csrc/rt")
  target_compile_options(kernels_${isa} PRIVATE ${kernel_flags} -march=x86-64-${isa} ${kernel_flags_${isa}})
  target_link_options(kernels_${isa} PRIVATE -Wl,--as-needed -s)
  share_objects(kernels_${isa})
  install(TARGETS kernels_${isa} LIBRARY DESTINATION rushlight/lib)
endforeach()
file(GLOB manifests "${kernels}/*.json" "${kernels}/*.txt")
install(FILES ${manifests} DESTINATION rushlight/lib)
