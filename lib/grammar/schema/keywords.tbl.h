/* SPDX-License-Identifier: Apache-2.0 */
/* Keywords of JSON Schema that say something of the values. Others are annotations, whoever made
 * them: `title`, `x-order`, `enumDescriptions`.
 *
 * OF_TYPE(name, type)  speaks of the values of one type, which it chooses where there is no `type`;
 *                      rows of a type stand together
 * OTHER(name)          speaks of all values, or is a part of another keyword
 * REFUSED(name)        cannot be enforced
 *
 * No include guard. */
#ifndef OF_TYPE
#define OF_TYPE(...)
#endif
#ifndef OTHER
#define OTHER(...)
#endif
#ifndef REFUSED
#define REFUSED(...)
#endif
OF_TYPE("properties", "object")
OF_TYPE("required", "object")
OF_TYPE("minProperties", "object")
OF_TYPE("maxProperties", "object")
OF_TYPE("additionalProperties", "object")
OF_TYPE("patternProperties", "object")
OF_TYPE("propertyNames", "object")
OF_TYPE("items", "array")
OF_TYPE("prefixItems", "array")
OF_TYPE("minItems", "array")
OF_TYPE("maxItems", "array")
OF_TYPE("minLength", "string")
OF_TYPE("maxLength", "string")
OF_TYPE("pattern", "string")
OF_TYPE("format", "string")
OF_TYPE("minimum", "number")
OF_TYPE("maximum", "number")
OF_TYPE("exclusiveMinimum", "number")
OF_TYPE("exclusiveMaximum", "number")
OF_TYPE("multipleOf", "number")
OTHER("type")
OTHER("nullable")
OTHER("enum")
OTHER("const")
OTHER("$ref")
OTHER("allOf")
OTHER("anyOf")
OTHER("oneOf")
OTHER("additionalItems")
OTHER("uniqueItems")
REFUSED("not")
REFUSED("if")
REFUSED("then")
REFUSED("else")
REFUSED("dependentSchemas")
REFUSED("dependentRequired")
REFUSED("dependencies")
REFUSED("contains")
REFUSED("minContains")
REFUSED("maxContains")
REFUSED("unevaluatedProperties")
REFUSED("unevaluatedItems")
REFUSED("$dynamicRef")
REFUSED("$recursiveRef")
#undef OF_TYPE
#undef OTHER
#undef REFUSED
