// The tape: nodes, edges, saved tensors, and the engine's entry.
// Invariant: edges point to older nodes only, so the graph has no cycles of nodes; a node never
// owns a tensor that it produced (outputs are saved as memory, not as objects), so graphs die by
// reference counts alone.
#pragma once
#include "core.h"
#include "plan.h"
#include "tensor.h"

namespace core {

struct Edge { Node* node; uint32_t output; };          // owned node, null: no gradient wanted

// What a pack hook made of a saved tensor, what makes it a tensor again, and where that one belongs.
struct Packed { PyObject *value, *unpack; Edge maker; };

// A tensor kept for the derivative: an operand (the object) or an output (its memory); or packed.
struct Saved {
  Packed* packed;                                      // owned
  Tensor* operand;
  Storage* storage;
  Layout* layout;
  Counter* counter;
  int64_t offset, version;
  int32_t output;                                      // of the node; -1: an operand
};

enum class NodeKind : uint8_t { Operator, Accumulate, Python, WriteView, ViewOf };

struct HookEntry { uint32_t output; PyObject* hooks; };          // dict id -> callable, owned
struct RetainEntry { uint32_t output; PyObject* weak; };         // weak reference to the tensor
struct NodeExtra {
  std::vector<HookEntry> hooks;
  std::vector<RetainEntry> retained;
  PyObject *post_hooks = nullptr, *pre_hooks = nullptr, *metadata = nullptr, *name = nullptr;
  PyObject* callable = nullptr;                        // Python: backward(*grads)
  PyObject* saved = nullptr;                           // Python: SavedTensors, freed with the graph
  int materialize = 1;  // Python: 0 None, 1 zeros where no gradient came, 2 zeros and which first
  Node* inner = nullptr;                               // WriteView: the node of the call that wrote
  // WriteView, ViewOf: geometry; offset relative to the base's
  Layout *base = nullptr, *view = nullptr;
  int64_t offset = 0;
};

struct Task;                                           // of the engine

struct Node {
  PyObject_HEAD
  NodeKind kind;
  bool released, had_saved;
  uint16_t nouts;
  uint32_t nedges, nsaved, nparams;
  Operator* op;
  Backward* backward;                                  // counted
  uint64_t sequence;
  Tensor* variable;                                    // Accumulate: the leaf, owned
  Edge* edges;
  Saved* saved;
  PyObject** params;                                   // owned
  Layout** outs;                                       // layouts of the outputs, owned
  NodeExtra* extra;
  Task* tasks;                                         // running engines that know this node
  PyObject* weakrefs;
  Edge inline_edges[3];
  Saved inline_saved[2];
  PyObject* inline_params[2];
  Layout* inline_outs[1];
};
extern PyTypeObject *NodeType, *SavedTensorType;
// (pack, unpack) for tensors that are saved from now on, or null; owned, one a thread.
extern __thread PyObject* saved_hooks;
extern __thread uint64_t backward_id;                  // of the innermost run on this thread; 0: none
inline Node* node_of(PyObject* o) { return reinterpret_cast<Node*>(o); }
inline PyObject* py(Node* n) { return reinterpret_cast<PyObject*>(n); }
inline Edge edge_to(Node* n, uint32_t output) { Py_INCREF(py(n)); return Edge{n, output}; }


Node* current_grad_fn(Tensor*);  // borrowed; regenerated for a view whose base was written
Edge gradient_edge(Tensor*);                           // owned node
// the result's tensors get a node, where differentiable
void record_call(Call&, Plan*, Ref& result);
// in-place calls: what the derivative reads, before it is overwritten
Own<Node> node_before_write(Call&, Plan*, Tensor* out);
Own<Node> node_of_constant(Operator*);  // for one without a derivative: the gradient ends here
void record_write(Node*, Tensor* out);                   // and after
void record_view(Call&, Tensor* view);                 // an affine view by its operator
Node* node_new(NodeKind, int nedges, int nsaved, int nparams, int nouts);
NodeExtra* node_extra(Node*);
void node_release(Node*);                              // drops what was saved
void attach(Tensor*, Node* borrowed, uint32_t output); // the tensor becomes that output
// the same after an in-place write; handles views
void rebase(Tensor* written, Node* borrowed, uint32_t output);
void save_memory(Saved&, Tensor*, int64_t version, int output);
void save_operand(Saved&, Tensor*, int64_t version);
Own<Tensor> saved_unpack(Node*, const Saved&);         // checks the version
std::string node_name(Node*);

Ref tensor_hook(Tensor*, PyObject* callable);
Ref tensor_post_hook(Tensor*, PyObject* callable);
void tensor_retain_grad(Tensor*);

// engine.cpp. Sequences of tensors; `gradients` may hold None. accumulate: into .grad of leaves
// (inputs None: of all); otherwise the result is a tuple of gradients of `inputs`.
Ref run_backward(PyObject* outputs, PyObject* gradients, bool keep, bool create, PyObject* inputs,
    bool accumulate, bool allow_unused);

extern PyMethodDef tape_functions[];
extern int64_t live_nodes;
void tape_init(PyObject* module);

}  // namespace core
