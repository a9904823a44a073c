// Package handle keeps the state of tools between calls, on a gateway that has no
// sessions. A tool's state travels as a handle: a string in its result that the
// agent passes as an argument of later calls.
//
// From the bottom up:
//
//   - [Keys] sign handles, and whatever else replicas have to trust of each other: the
//     first key signs, all verify ([ParseKeys]).
//   - A [Binding] is where a handle holds, and for whom. Elsewhere it is as good as
//     made up.
//   - [Signed] keeps a state inside its handle: readable for whoever holds it, and
//     on every replica that has the key.
//   - [Stored] keeps a state in a [Store], Redis or a [Memory], and its handle is
//     an opaque random id.
//   - Both are a [Keeper]. What goes wrong is an [*Error], whose text is written
//     for the model that made the call.
//   - A [Round] is a call whose tool waits for its caller's input. [Keys.SealRequest]
//     seals what the tool wants back with it, for that one call and a few minutes.
//
// Handles and states are in no error, and nothing here logs.
package handle
